"""What a person sees: figures, the tuner, the dashboard, the HTML report."""
