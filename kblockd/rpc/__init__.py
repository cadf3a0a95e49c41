"""gRPC in: listeners and who stands behind them, requests to the domain, answers and errors back.

::

    sockets       Unix sockets that nobody else can open, not even while they are made
    identity      listeners, and the Authorizer that asks the policy once a principal, method and revision
    interceptors  what surrounds every call: parse, authorise, call, translate errors
    binding       the methods of the proto files onto the services
    services/     one class a proto service: convert and delegate, nothing else
    convert       requests to the domain, naming every wrong field
    answers       the domain to messages, below 4 MiB
    status        the one table of reasons and codes; google.rpc.Status
    server        RpcServer: start, stop, health, reflection

May not live here: decisions about executions and approvals, anything that a caller over another wire would need too.
"""
