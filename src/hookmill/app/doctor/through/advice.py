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
EARLY_ANSWER: Final = (
    "The sender may repeat the delivery, and it is refused again. nginx and Caddy lose some of these responses, and "
    "have no setting for it."
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
METHODS: Final = (
    "Let Hookmill answer every method. nginx: remove `limit_except`, `add_header Access-Control-…` and `if "
    "($request_method …)`. Caddy: remove `method` matchers, and `respond` to OPTIONS."
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
COOKIES: Final = (
    "Senders don't need cookies. nginx: remove `userid on`, `sticky` and `add_header Set-Cookie`. Caddy: remove "
    "`lb_policy cookie` and `header Set-Cookie`."
)
COMPRESSION: Final = (
    "Hookmill's responses to deliveries have about 50 bytes, and a compressed live page may be delayed. nginx: "
    "`gzip off;`, or no `gzip_proxied`. Caddy: remove `encode`."
)
EXPECT: Final = (
    "The proxy should answer `Expect: 100-continue` with 100, or pass it on. Otherwise senders such as curl wait a "
    "second before each large body. nginx and Caddy do so by default."
)
KEEP_ALIVE: Final = (
    "Each delivery then needs a new connection, and a TLS handshake. nginx: `keepalive_timeout 65s;`. Caddy: remove "
    "`servers { keepalive_… }` and `header Connection close`."
)
SLOW_BODY: Final = (
    "A body may take 30 seconds to arrive. nginx: `client_body_timeout 60s;`. Caddy: `servers { timeouts { read_body "
    "60s } }`, or no such limit."
)
FRAMING: Final = (
    "The proxy must refuse such a request, or pass on one clear length. Otherwise a client could hide a second request "
    "in the body (request smuggling). Update the proxy: current versions of nginx and Caddy do this."
)
HTTP2: Final = (
    "The proxy offers HTTP/2, so some senders use it. nginx: check `http2` and `proxy_pass`. Caddy: set `protocols h1` "
    "if HTTP/2 can't be repaired."
)
REPEATED: Final = (
    "The proxy must send each request to Hookmill once. nginx: remove `mirror`, and `non_idempotent` from "
    "`proxy_next_upstream`. Caddy: remove `lb_retries`, or limit it to GET with `lb_retry_match`."
)
FORWARDED_FOR: Final = (
    "The proxy must add the client's address to X-Forwarded-For. nginx: `proxy_set_header X-Forwarded-For "
    "$proxy_add_x_forwarded_for;`. Caddy: remove `header_up X-Forwarded-For` and `header_up -X-Forwarded-For`."
)
TRUSTED_PROXIES: Final = (
    "Set trusted_proxies to the address from which the proxy connects to Hookmill, and to nothing else."
)
ANOTHER_HOST: Final = "Run this command on another host, with --webhook-url or with the settings of the installation."
REDIRECT: Final = (
    "Tokens must not be sent without TLS. nginx: `return 308 https://$host$request_uri;` in the server block of port "
    "80. Caddy redirects by default: remove `auto_https disable_redirects`, and the site http://."
)
HOST: Final = (
    "The proxy must pass the Host header. nginx: `proxy_set_header Host $http_host;`. Caddy passes it: remove "
    "`header_up Host`. If it is passed, set base_url to this URL."
)
TLS_VERSION: Final = "Allow TLS 1.2 and 1.3 only. nginx: `ssl_protocols TLSv1.2 TLSv1.3;`. Caddy does so by default."
REACH: Final = (
    "Check the DNS name, the firewall, and that the proxy passes /webhooks/w/ to the service. nginx: `proxy_pass "
    "http://127.0.0.1:8420;`. Caddy: `reverse_proxy 127.0.0.1:8420`."
)
