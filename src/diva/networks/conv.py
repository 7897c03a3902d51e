"""Convolutional encoder and decoder of the paper's first architecture figure."""

from __future__ import annotations

from torch import Tensor, nn

CHANNELS = (32, 64)


def check_image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (channels, height, width); raises ValueError unless two halvings leave whole numbers."""
    channels, height, width = shape
    if height % 4 or width % 4 or min(shape) < 1:
        raise ValueError(
            f"Images should have a height and width divisible by 4, got {height} x {width}. Crop, pad or resize them "
            "(diva fit --image-size), pass an encoder and decoder of your own, or pass rows of numbers instead of images."
        )
    return channels, height, width


class ConvEncoder(nn.Module):
    """Two 4 x 4 convolutions of stride 2 with batch norm, then mean and log variance; images are (channels, height, width)."""

    def __init__(self, image_shape: tuple[int, int, int], latent_dim: int) -> None:
        super().__init__()
        channels, height, width = check_image_shape(image_shape)
        first, second = CHANNELS
        self.body = nn.Sequential(
            nn.Conv2d(channels, first, kernel_size=4, stride=2, padding=1),
            nn.BatchNorm2d(first),
            nn.LeakyReLU(),
            nn.Conv2d(first, second, kernel_size=4, stride=2, padding=1),
            nn.BatchNorm2d(second),
            nn.LeakyReLU(),
            nn.Flatten(),
        )
        n_hidden = second * (height // 4) * (width // 4)
        self.mean = nn.Linear(n_hidden, latent_dim)
        self.log_var = nn.Linear(n_hidden, latent_dim)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Encode images (n, C, H, W): mean and log variance, each (n, D)."""
        hidden = self.body(x)
        return self.mean(hidden), self.log_var(hidden)


class ConvDecoder(nn.Module):
    """The encoder mirrored, 3 x 3 to the image, tanh."""

    def __init__(self, image_shape: tuple[int, int, int], latent_dim: int) -> None:
        super().__init__()
        channels, height, width = check_image_shape(image_shape)
        first, second = CHANNELS
        self.body = nn.Sequential(
            nn.Linear(latent_dim, second * (height // 4) * (width // 4)),
            nn.Unflatten(1, (second, height // 4, width // 4)),
            nn.ConvTranspose2d(second, second, kernel_size=4, stride=2, padding=1),
            nn.BatchNorm2d(second),
            nn.LeakyReLU(),
            nn.ConvTranspose2d(second, first, kernel_size=4, stride=2, padding=1),
            nn.BatchNorm2d(first),
            nn.LeakyReLU(),
            nn.ConvTranspose2d(first, channels, kernel_size=3, stride=1, padding=1),
            nn.Tanh(),
        )

    def forward(self, z: Tensor) -> Tensor:
        """Decode codes (n, D) to images (n, C, H, W) in [-1, 1]."""
        images: Tensor = self.body(z)
        return images
