"""What every deep model shares: the loop, objectives, augmentation, pseudo-labels, replay."""
