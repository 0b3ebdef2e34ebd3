"""What the guard costs on the machine at hand: figures for ``guard bench``."""
