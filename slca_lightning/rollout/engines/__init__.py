"""What samples the policy's turns. A new engine is one new file with a :class:`GenerationEngine` in it."""
