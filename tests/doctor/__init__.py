"""Tests of `hookmill doctor`. Real services, databases and proxies are broken in many ways, and each way is found."""
