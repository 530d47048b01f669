"""The rollout loop: chat rendering in token ids, turns of policy and tools, generation engines, collections."""
