"""The reliability scorecard: each promise of docs/reliability.md as a row that measures it."""
