"""What a history means: verdicts with evidence, what to do, and the known bugs behind them."""
