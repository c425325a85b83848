"""Tokens for the IAM authentication of Amazon MSK.

MSK takes them by SASL/OAUTHBEARER; its Java library, whose properties are understood here, knows AWS_MSK_IAM, too.
Credentials come from AWS's usual chain (environment, profile, role of the machine).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from coordinator_core.cluster.errors import LoginError
from coordinator_core.cluster.oauth import TokenProvider
from coordinator_core.errors import UsageError

MECHANISM = "AWS_MSK_IAM"
LOGIN_MODULE = "IAMLoginModule"
HANDLERS = ("IAMClientCallbackHandler", "IAMOAuthBearerLoginCallbackHandler")
"""Classes of ``software.amazon.msk.auth.iam``, for AWS_MSK_IAM and for OAUTHBEARER."""

_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?\Z")
_SIGNER = "aws_msk_iam_sasl_signer"


def region_of(servers: Sequence[str]) -> str | None:
    """The AWS region that the name of an MSK broker has; ``None`` for other brokers."""
    return next((found[1] for server in servers if (found := _HOST.search(server.lower()))), None)


def token_provider(servers: Sequence[str], options: Mapping[str, str]) -> TokenProvider:
    """The provider for these brokers; ``options`` are those of the JAAS line (``awsProfileName``, ``awsRoleArn``).

    Raises ``UsageError`` where no region is known, and without the extra ``msk``.
    """
    region = region_of(servers) or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None:
        raise UsageError("MSK IAM: no broker's name tells the AWS region; set AWS_REGION")
    if find_spec(_SIGNER) is None:
        raise UsageError("MSK IAM needs the extra msk of regroup (aws-msk-iam-sasl-signer-python), not installed here")
    return TokenProvider(lambda: _signed(region, options))


def _signed(region: str, options: Mapping[str, str]) -> tuple[str, float]:
    """A signed token and its life in seconds."""
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        if role := options.get("awsRoleArn"):
            session = options.get("awsRoleSessionName", "regroup")
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_role_arn(region, role, session)
        elif profile := options.get("awsProfileName"):
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_profile(region, profile)
        else:
            token, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except (BotoCoreError, ClientError) as error:
        raise LoginError(f"MSK IAM: no token: {error}") from None
    # Where AWS's chain has no credentials the signer fails at the attributes of none.
    except (AttributeError, ValueError):
        raise LoginError(
            "MSK IAM: no AWS credentials in the environment, a profile or the role of the machine"
        ) from None
    return token, expires_ms / 1000 - time.time()
