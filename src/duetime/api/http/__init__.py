"""HTTP below the routes: the protocol with its bounds, refusals, and how much of bodies and responses is held."""
