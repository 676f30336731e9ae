"""Image, chart and manifests: what builds them, and the programs that check them."""
