"""The gRPC server: listeners and their principals, requests into the domain, answers and errors back.

::

    sockets       Unix sockets that nobody else can open, not even while they are being created
    identity      listeners, and the Authorizer, which asks the policy once per principal, method and revision
    interceptors  the steps around every call: admit, authorise, parse, call, translate errors
    binding       maps the methods of the proto files to the services
    services/     one class per proto service: convert and delegate, nothing else
    convert       requests to domain objects, naming every wrong field
    answers       domain objects to messages of at most 4 MiB
    status        the one table of reasons and codes; google.rpc.Status
    server        RpcServer: start, stop, health, reflection

May not live here: decisions about executions and approvals, anything that another transport would need as well.
"""
