"""The OPA server as an engine: a remote one, or one that kblockd starts and supervises.

    client      one OPA, queried through a hardened opa-python-client
    replies     OPA's responses as replies or typed failures
    tarball     a bundle as OPA takes it, with our revision in its manifest
    launch      limits the child and execs OPA
    running     a program in a process group of its own
    process     one OPA process on a Unix socket of its own
    supervised  SupervisedEngine: a process for each revision, watched and started again
    check       the checks of a bundle before OPA may decide by it
    silence     probes which builtins this OPA silences over a wrong type; bodies reads its syntax tree
    workshop    a bundle laid out in files, and temporary OPA processes over it
    revisions   the file in which `kblockd policy check` notes accepted revisions
    access      address and credentials of a remote OPA, from the configuration's files
    remote      RemoteEngine: queries an OPA that somebody else runs
    remote_watch   RemoteWatch: which revision that OPA serves, and whether it may

A supervised OPA listens on a Unix socket in a folder of the daemon alone, never on TCP: on a port of the loopback
interface, any local process could answer in its place after it died.

May not live here: uploads to OPA of any kind, a second language for decisions, what a decision means.
"""
