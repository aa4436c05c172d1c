"""Creates the client of the OpenID Connect provider, and the rules for signing in there, from the settings."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hookmill.app.tls import client_context
from hookmill.domain.external_identity import ExternalSignIn
from hookmill.domain.secret import SecretValue
from hookmill.settings import Settings

if TYPE_CHECKING:
    from hookmill.oidc.provider import Provider


def external_sign_in(settings: Settings) -> ExternalSignIn | None:
    """The rules for signing in at the provider. None without a provider."""
    if settings.oidc_issuer is None:
        return None
    return ExternalSignIn(
        issuer=settings.oidc_issuer,
        provider_name=settings.oidc_provider_name,
        session_hours=settings.oidc_session_hours,
        admin_groups=frozenset(settings.oidc_admin_groups),
        roles_by_group=settings.oidc_roles,
        allowed_groups=frozenset(settings.oidc_allowed_groups),
    )


def identity_provider(settings: Settings, now_us: Callable[[], int]) -> "Provider | None":
    """The client of the provider. None without a provider. Sends no request. Raises `Invalid` like `client_context`."""
    if settings.oidc_issuer is None:
        return None
    # Imported here, because its libraries take time to import, and few services have a provider.
    from hookmill.oidc.provider import Provider, ProviderConfig

    assert settings.oidc_client_id is not None, "the settings require it"
    secret = settings.oidc_client_secret
    return Provider(
        ProviderConfig(
            issuer=settings.oidc_issuer,
            client_id=settings.oidc_client_id,
            client_secret=SecretValue(secret.get_secret_value()) if secret is not None else None,
            scopes=settings.oidc_scopes,
            groups_claim=settings.oidc_groups_claim,
            redirect_uri=settings.oidc_redirect_uri,
            tls=client_context(settings.oidc_ca_file, "oidc_ca_file"),
        ),
        now_us,
    )
