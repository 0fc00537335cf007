"""A server for trained runs: a page to try them, and a JSON endpoint (docs/serve.md). Needs the extra `serve`."""
