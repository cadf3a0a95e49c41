"""The OPA server as an engine: a remote one, or one that kblockd starts and looks after.

    client      one OPA asked through opa-python-client, with every hole of it closed
    replies     what OPA sent, as a reply or a failure that says which
    tarball     a bundle as OPA takes it, with our revision in its manifest
    launch      main of the child before it becomes OPA
    running     a program in a process group of its own
    process     one OPA process on a Unix socket of its own
    supervised  SupervisedEngine: a process for each revision, watched and started again
    check       what a bundle must pass before OPA may decide by it
    silence     which builtins of this OPA are silent over a wrong type, asked of it; bodies reads its syntax tree
    workshop    a bundle in files, and the OPA binary that looks at it in throw-away processes
    explain     the rules that fire, by OPA's coverage report
    trials      a run of a bundle's tests
    revisions   the file in which `kblockd policy check` notes what passed
    access      from the files of the configuration to where and how a remote OPA is asked
    remote      RemoteEngine: asks an OPA that somebody else runs
    watch       RemoteWatch: which revision that OPA serves, and whether it may

A supervised OPA listens on a Unix socket in a folder of the daemon alone, never on TCP: on a port of the loopback
interface any process of the machine could answer in its place after it died.

May not live here: uploads to OPA of any kind, a second language for decisions, what a decision means.
"""
