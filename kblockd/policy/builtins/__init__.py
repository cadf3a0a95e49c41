"""The builtins that a policy may call, and Python versions of those that the embedded engine gets wrong.

allowed       the arity of every allowed builtin, and why the others are refused
replacements  the table of replacements, with time, numbers, networks and digests
patterns      regex.* and glob.match on RE2
texts         letters, search, base64url and JSON; ``letter_case`` is generated
formats       sprintf
integers      arithmetic within 64 bits
urlquery      urlquery.*
"""
