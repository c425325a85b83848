"""Errors between Regroup and a cluster. No message holds a secret or the bytes of a request."""

from __future__ import annotations

from coordinator_core.errors import ExitCode, RegroupError, UsageError


class ClusterError(RegroupError):
    """The cluster could not be reached, or did not answer in time; trying again may help."""

    exit_code = ExitCode.INTERNAL


class LoginError(UsageError):
    """The cluster refuses our credentials or certificate, or we refuse its certificate."""


class MissingAclError(UsageError):
    """The principal lacks rights that a capture needs: ``operation`` on ``resource`` (``Topic:name``)."""

    def __init__(self, operation: str, resource: str, purpose: str) -> None:
        super().__init__(f"not authorized: {purpose} needs the ACL {operation} on {resource}")
        self.operation = operation
        self.resource = resource
