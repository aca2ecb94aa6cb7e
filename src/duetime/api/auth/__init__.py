"""Who asks, and what they may do: tokens, API keys, rights."""
