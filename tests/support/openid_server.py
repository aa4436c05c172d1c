"""A real OpenID Connect provider, as a program: the certified implementation of idpyoidc behind an HTTP server.

`python -m tests.support.openid_server CONFIG` starts it. CONFIG is JSON with `port`, `client_id`, `client_secret`,
`redirect_uri` and `users`: the claims of each user, by the name. Every user's password is the name.

A request is for tests: `POST /test/users` replaces the users.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from idpyoidc.message.oauth2 import ResponseMessage
from idpyoidc.message.oidc import AccessTokenRequest, AuthorizationRequest
from idpyoidc.server import Server
from idpyoidc.server.configure import OPConfiguration
from idpyoidc.server.user_authn.user import UserAuthnMethod, create_signed_jwt

KEYS: Final = [{"type": "RSA", "use": ["sig"]}, {"type": "EC", "crv": "P-256", "use": ["sig"]}]
TOKEN_KEYS: Final = [{"type": "oct", "bytes": 24, "use": ["enc"], "kid": kid} for kid in ("code", "token")]
PAGE: Final = """<!doctype html>
<html lang="en"><title>Example sign-in</title>
<h1>Example sign-in</h1>
<form method="post" action="/login">
<input type="hidden" name="token" value="{token}">
<label>User <input name="username"></label>
<label>Password <input name="password" type="password"></label>
<button>Log in</button>
</form>
"""


class SignInForm(UserAuthnMethod):  # type: ignore[misc]
    """Shows a form, and accepts the name of a user as the password."""

    users: dict[str, Any]

    def __call__(self, **request: Any) -> str:
        keyjar = self.upstream_get("attribute", "keyjar")
        return PAGE.format(token=create_signed_jwt(self.upstream_get("context").issuer, keyjar, **request))

    def verify(self, *_: Any, **form: str) -> str | None:
        name = form.get("username", "")
        return name if name in self.users and form.get("password") == name else None


class Provider:
    def __init__(self, config: dict[str, Any]):
        self.issuer = f"http://127.0.0.1:{config['port']}"
        self.users: dict[str, Any] = config["users"]
        SignInForm.users = self.users
        self.server = Server(OPConfiguration(conf=self._configuration(), base_path=".", domain="127.0.0.1"), cwd=".")
        # It has copied the configuration.
        self.server.context.userinfo.db = self.users
        self.server.context.cdb[config["client_id"]] = {
            "client_id": config["client_id"],
            "client_secret": config["client_secret"],
            "redirect_uris": [(config["redirect_uri"], {})],
            "response_types_supported": ["code"],
            "allowed_scopes": ["openid", "profile", "email"],
            "token_endpoint_auth_method": "client_secret_basic",
        }

    def _configuration(self) -> dict[str, Any]:
        def endpoint(path: str, name: str, **arguments: Any) -> dict[str, Any]:
            return {"path": path, "class": f"idpyoidc.server.oidc.{name}", "kwargs": arguments}

        usage = {"supports_minting": ["access_token", "id_token"], "max_usage": 1, "expires_in": 120}
        return {
            "issuer": self.issuer,
            "httpc_params": {"verify": False, "timeout": 1},
            "preference": {"subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"]},
            "add_on": {
                "pkce": {
                    "function": "idpyoidc.server.oauth2.add_on.pkce.add_support",
                    "kwargs": {"essential": True, "code_challenge_method": "S256"},
                }
            },
            "authz": {
                "class": "idpyoidc.server.authz.AuthzHandling",
                "kwargs": {"grant_config": {"usage_rules": {"authorization_code": usage, "access_token": {}}}},
            },
            "authentication": {"user": {"acr": "password", "class": SignInForm, "kwargs": {}}},
            "claims_interface": {"class": "idpyoidc.server.session.claims.ClaimsInterface", "kwargs": {}},
            "cookie_handler": {
                "class": "idpyoidc.server.cookie_handler.CookieHandler",
                "kwargs": {"keys": {"key_defs": [{"type": "OCT", "use": [use], "kid": use} for use in ("enc", "sig")]}},
            },
            "endpoint": {
                "provider_info": endpoint(
                    ".well-known/openid-configuration",
                    "provider_config.ProviderConfiguration",
                    client_authn_method=None,
                ),
                "authorization": endpoint(
                    "authorization",
                    "authorization.Authorization",
                    client_authn_method=None,
                    response_types_supported=["code"],
                    response_modes_supported=["query"],
                ),
                "token": endpoint("token", "token.Token", client_authn_method=["client_secret_basic"]),
                "userinfo": endpoint("userinfo", "userinfo.UserInfo"),
            },
            "key_conf": {"key_defs": KEYS, "uri_path": "jwks"},
            "scopes_to_claims": {
                "openid": ["sub"],
                "profile": ["name", "groups"],
                "email": ["email", "email_verified"],
            },
            "token_handler_args": {
                "key_conf": {"key_defs": TOKEN_KEYS},
                "code": {"kwargs": {"lifetime": 600}},
                "token": {"class": "idpyoidc.server.token.jwt_token.JWTToken", "kwargs": {"lifetime": 600}},
                "id_token": {"class": "idpyoidc.server.token.id_token.IDToken", "kwargs": {}},
            },
            "userinfo": {"class": "idpyoidc.server.user_info.UserInfo", "kwargs": {"db": self.users}},
        }


class Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self):
        path, parameters = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query))
        endpoints = {
            "/.well-known/openid-configuration": "provider_config",
            "/authorization": "authorization",
            "/userinfo": "userinfo",
        }
        if path in endpoints:
            self._process(endpoints[path], parameters)
        elif path == "/jwks":
            self._send(200, json.dumps(self.provider.server.keyjar.export_jwks()))
        else:
            self._send(404, "{}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/token":
            self._process("token", dict(parse_qsl(body)))
        elif self.path == "/login":
            self._sign_in(dict(parse_qsl(body)))
        elif self.path == "/test/users":
            self.provider.users.clear()
            self.provider.users.update(json.loads(body))
            self._send(200, "{}")

    def _process(self, endpoint_name: str, parameters: dict[str, str]):
        endpoint = self.provider.server.get_endpoint(endpoint_name)
        request_info = {
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "method": self.command,
            "url": self.provider.issuer + self.path,
            "cookie": [],
        }
        request = endpoint.parse_request(parameters, http_info=request_info)
        if isinstance(request, ResponseMessage) and "error" in request:
            self._send(400, request.to_json())
            return
        if endpoint_name == "token":
            request = AccessTokenRequest(**request)
        answer = endpoint.process_request(request, http_info=request_info)
        if "http_response" in answer:
            self._send(200, answer["http_response"], ("Content-Type", "text/html"))
        else:
            self._respond(endpoint, request, answer)

    def _sign_in(self, form: dict[str, str]):
        method = self.provider.server.context.authn_broker.get_method_by_id("user")
        user = method.verify(**form)
        if user is None:
            self._send(403, "Wrong name or password")
            return
        arguments = method.unpack_token(form["token"])
        request = AuthorizationRequest().from_urlencoded(arguments["query"])
        endpoint = self.provider.server.get_endpoint("authorization")
        session = endpoint.create_session(request, user, arguments["authn_class_ref"], arguments["iat"], method)
        self._respond(endpoint, request, endpoint.authz_part2(request=request, session_id=session))

    def _respond(self, endpoint: Any, request: Any, answer: dict[str, Any]):
        response = endpoint.do_response(request=request, **answer)
        if response.get("response_placement", endpoint.response_placement) == "body":
            self._send(400 if "error" in response["response"][:10] else 200, response["response"])
        else:
            self._send(303, "", ("Location", response["response"]))

    def _send(self, status: int, body: str, *headers: tuple[str, str]):
        content = body.encode()
        self.send_response(status)
        for name, value in headers or [("Content-Type", "application/json")]:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object):
        pass


def main():
    config = json.loads(sys.argv[1])
    Handler.provider = Provider(config)
    ThreadingHTTPServer(("127.0.0.1", config["port"]), Handler).serve_forever()


if __name__ == "__main__":
    main()
