"""The frozen teacher: features -> regions -> tracklets -> layout, agent, visibility and interaction targets."""
