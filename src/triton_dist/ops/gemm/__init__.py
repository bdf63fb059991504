"""Matrix products that overlap with communication."""
