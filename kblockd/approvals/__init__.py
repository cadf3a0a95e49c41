"""Approval requests and decisions: what an approver is shown, who may decide or revoke, and the signed decision.

May not live here: the pipeline (it asks this package), gRPC, anything about how an effect is carried out.
"""
