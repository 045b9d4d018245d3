"""Interactive searches: the parts of pipelines that need no model on the device, run at once and stored nowhere."""
