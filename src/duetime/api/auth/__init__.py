"""Authentication and authorization: tokens, API keys, rights."""
