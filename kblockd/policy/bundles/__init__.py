"""A bundle, read once and verified.

    bundle      the only way in: a folder of Rego or an OPA bundle, with its revision and origin
    files       the files of a folder, and which of them count
    archive     a .tar.gz taken apart in memory; ``tar`` is its reader
    manifest    .manifest, and the roots that it sets
    documents   data.json and data.yaml: strict, merged and digested as OPA does
    signatures  .signatures.json against the configured keys; ``jws`` holds keys and tokens

Interprets no Rego and starts no process.
"""
