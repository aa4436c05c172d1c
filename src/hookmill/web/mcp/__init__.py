"""The MCP server: operations of the HTTP API as tools for coding agents.

It is served at /mcp (`endpoint.py`) and by `hookmill mcp`. Each call of a tool is a request to the API with the
caller's API key. So permissions, rate limits, idempotency and the audit log are those of the API. Importing this
package takes a second, so only a process that serves MCP imports it.
"""
