"""The reproductions: the paper's effect in the problem world, and what rules do on two knowledge graphs."""
