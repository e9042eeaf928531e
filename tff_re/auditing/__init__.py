"""An audit of a finished run: what one client's update, the trained model and the files of the run reveal."""
