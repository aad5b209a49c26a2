"""What is read off conditionals and chains: rectangle statistics, influence, margins, exact finite chains, survival, semantics."""
