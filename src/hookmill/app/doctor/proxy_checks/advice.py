"""The changes that a proxy needs, with the directives of nginx and of Caddy."""

from typing import Final

AUTHORIZATION: Final = (
    "Let the proxy pass the Authorization header. nginx: remove `proxy_set_header Authorization` and `auth_basic` from "
    "this location. Caddy: remove `header_up -Authorization` and `basicauth`."
)
BODY_SIZE: Final = (
    "The proxy's limit must be larger than 262,144 bytes, so that Hookmill refuses and records larger bodies itself. "
    "nginx: `client_max_body_size 1m;`. Caddy: remove `request_body`, or set `max_size 1MB` in it."
)
BODY_BYTES: Final = (
    "The proxy must not change bodies, because their signatures would become invalid. nginx: remove Lua or njs code "
    "that reads bodies. Caddy: remove plugins that rewrite bodies."
)
FIREWALL: Final = (
    "Exempt /webhooks/w/ from the web application firewall: payloads contain text from other people, which may look "
    "like an attack. nginx: `modsecurity off;` in this location, and no `if` on $http_user_agent or $request_body."
)
CHUNKED: Final = (
    "The proxy must accept bodies without a declared length. nginx: remove `if ($content_length …)`; it buffers and "
    "forwards such bodies by default. Caddy does so by default."
)
HEADERS: Final = (
    "The proxy must pass all request headers. nginx: remove `proxy_pass_request_headers off` and `proxy_set_header` "
    "with an empty value. Caddy: remove `header_up -…` and `request_header -…`."
)
UNDERSCORES: Final = (
    "nginx drops such headers by default: set `underscores_in_headers on;` in the server block that listens. Caddy "
    "passes them."
)
LONG_HEADERS: Final = (
    "Signatures of some providers are that long. nginx: `large_client_header_buffers 4 32k;`. Caddy: "
    "`servers { max_header_size 64KB }`."
)
PATH: Final = (
    "The proxy must pass the path as it was sent. nginx: write `proxy_pass http://127.0.0.1:8420;` without a path, not "
    "even a slash, and remove `rewrite` and `return`. Caddy: remove `rewrite`, `uri` and `handle_path`."
)
QUERY: Final = (
    "Some providers sign the URL with its query. nginx: write `proxy_pass` without a path and without $uri. Caddy: "
    "remove `rewrite` and `uri`. If the path and the query arrive unchanged, base_url differs from the URL that "
    "senders use."
)
ERRORS: Final = (
    "The proxy must not replace or change Hookmill's error responses: senders read the status, Retry-After and the "
    "body. nginx: `proxy_intercept_errors off;`, and no `proxy_hide_header`. Caddy: remove `handle_response` from "
    "`reverse_proxy`, and `header -…`."
)
CACHE: Final = (
    "The proxy must not cache responses: each delivery has an id of its own. nginx: `proxy_cache off;`. Caddy: remove "
    "`cache`. A CDN: bypass its cache for /webhooks/w/."
)
SLOW_BODY: Final = (
    "A body may take 30 seconds to arrive. nginx: `client_body_timeout 60s;`. Caddy: `servers { timeouts { read_body "
    "60s } }`, or no such limit."
)
FORWARDED_FOR: Final = (
    "The proxy must add the client's address to X-Forwarded-For. nginx: `proxy_set_header X-Forwarded-For "
    "$proxy_add_x_forwarded_for;`. Caddy: remove `header_up X-Forwarded-For` and `header_up -X-Forwarded-For`."
)
TRUSTED_PROXIES: Final = (
    "Set trusted_proxies to the address from which the proxy connects to Hookmill, and to nothing else."
)
REDIRECT: Final = (
    "Tokens must not be sent without TLS. nginx: `return 308 https://$host$request_uri;` in the server block of port "
    "80. Caddy redirects by default: remove `auto_https disable_redirects`, and the site http://."
)
REACH: Final = (
    "Check the DNS name, the firewall, and that the proxy passes /webhooks/w/ to the service. nginx: `proxy_pass "
    "http://127.0.0.1:8420;`. Caddy: `reverse_proxy 127.0.0.1:8420`."
)
