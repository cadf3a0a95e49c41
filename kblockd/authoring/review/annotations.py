"""``schemas:`` in annotations: do they refer to one that exists, for what it is the schema of?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kblockd.authoring.review import metadata
from kblockd.authoring.review.findings import ReviewFinding
from kblockd.authoring.review.metadata import Block
from kblockd.policy.rego.shape import Shape

KNOWN: Final = ("schema.input",)
"""``kblockd policy schema`` writes it; OPA reads it from the folder that ``--schema`` names."""


def annotated(texts: Mapping[str, str], shape: Shape) -> Iterator[ReviewFinding]:
    """Of every ``# METADATA`` block of the files, by their names."""
    for file, text in texts.items():
        for block in metadata.blocks(file, text):
            if isinstance(block, ReviewFinding):
                yield block
            else:
                yield from metadata.misplaced(block)
                yield from _schemas(block, shape)


def _schemas(block: Block, shape: Shape) -> Iterator[ReviewFinding]:
    rows = block.document.get("schemas")
    if rows is None:
        return
    if not isinstance(rows, list):
        yield block.finding(("schemas",), "schema", "schemas is not a list", "write `- input: schema.input`")
        return
    for number, row in enumerate(rows):
        key = ("schemas", number)
        if not isinstance(row, dict) or len(row) != 1:
            yield block.finding(key, "schema", "is not one path with its schema", "write `- input: schema.input`")
            continue
        ((path, schema),) = row.items()
        yield from _schema(block, (*key, path), str(path), schema, shape)


def _schema(block: Block, key: tuple[Any, ...], path: str, schema: Any, shape: Shape) -> Iterator[ReviewFinding]:
    root, *parts = path.split(".")
    if root not in ("input", "data") or not all(parts):
        yield block.finding(key, "schema", f"{path} is not a path", "begin it with input or data")
    elif isinstance(schema, dict):
        if root == "input":
            yield from _inline(block, key, tuple(parts), schema, shape)
    elif schema not in KNOWN:
        step = f"kblockd has {', '.join(KNOWN)} alone; write the schema out, or leave it out"
        yield block.finding(key, "schema", f"there is no schema {schema}", step)
    elif parts or root == "data":
        yield block.finding(key, "schema", f"{schema} is the schema of input, not of {path}", "write `- input:`")


def _inline(
    block: Block, key: tuple[Any, ...], parts: tuple[str, ...], schema: Mapping[str, Any], shape: Shape
) -> Iterator[ReviewFinding]:
    """A schema that is written out may say more than ours, and may not name what the input never has."""
    if misfit := shape.misfit(parts):
        yield block.finding(key, "schema", misfit.message, misfit.next_step)
        return
    properties = schema.get("properties")
    for name, below in properties.items() if isinstance(properties, dict) else ():
        deeper = below if isinstance(below, dict) else {}
        yield from _inline(block, (*key, "properties", name), (*parts, str(name)), deeper, shape)
