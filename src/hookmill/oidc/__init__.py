"""The client of an OpenID Connect provider: authorization code flow with PKCE.

Nothing here is imported unless the setting `oidc_issuer` is set.
"""
