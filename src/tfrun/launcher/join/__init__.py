"""Jobs whose machines join by hand: tfrun serve and tfrun join."""
