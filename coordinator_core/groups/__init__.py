"""Groups as a coordinator holds them: the state itself, and how records change it."""
