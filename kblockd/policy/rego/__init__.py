"""Rego source as the embedded engine parses it, and what may not be loaded.

syntax      the engine's syntax tree: walking, names, places
linter      refuses what the embedded engine would answer differently from OPA
negation    the part of the linter that looks below ``not``
affixes     the part that looks at builtins which OPA's rule index silences; ``bodies`` reads rules for it
text_paths  which paths certainly hold strings
shape       the shape of the input by its JSON schema, in schemas/
advice      the next step for an engine's error message
"""
