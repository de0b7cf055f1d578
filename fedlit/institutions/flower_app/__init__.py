"""fedlit's coordinator as an app of Flower's: also for a SuperLink that somebody else runs."""
