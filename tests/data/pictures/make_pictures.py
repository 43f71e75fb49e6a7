#!/usr/bin/python3
# make_pictures.py DIR: small pictures and what Pillow and NumPy make of them, for test_picture: DIR/*.png, *.jpg, and
# pictures.json with the pixels after the steps of preprocessor_config.json (Hugging Face's slow image processors).
# Needs python3-pil and python3-numpy.
import json
import math
import os
import sys

import numpy as np
from PIL import Image, ImageOps


def draw(width, height, channels, seed):
    y, x, c = np.mgrid[0:height, 0:width, 0:channels]
    wave = 90 * np.sin((x * (c + 1) + seed) / 3.7) + 80 * np.cos((y - c * x / 5) / 2.9)
    noise = ((x * 7919 + y * 104729 + c * 1299709 + seed) * 2654435761 % 2 ** 32 >> 26) - 32
    return np.clip(128 + wave + noise, 0, 255).astype(np.uint8).squeeze()


def save(folder):
    at = lambda name: os.path.join(folder, name)
    Image.fromarray(draw(31, 23, 3, 1)).save(at("rgb.png"))
    Image.fromarray(draw(5, 4, 3, 2)).save(at("small.png"))
    Image.fromarray(draw(9, 14, 1, 3)).save(at("gray.png"))
    Image.fromarray(draw(9, 8, 4, 4)).save(at("rgba.png"))
    Image.fromarray(draw(9, 8, 2, 5)).save(at("gray_alpha.png"))
    Image.fromarray(draw(9, 8, 3, 6)).quantize(13).save(at("palette.png"))
    Image.fromarray((draw(11, 8, 1, 7) > 128)).save(at("bits.png"))
    exif = Image.Exif()
    exif[0x112] = 6
    Image.fromarray(draw(33, 20, 3, 8)).save(at("turned.jpg"), quality=85, exif=exif)
    Image.fromarray(draw(17, 19, 1, 9)).save(at("gray.jpg"))


def center_crop(x, height, width):
    h, w = max(height, x.shape[0]), max(width, x.shape[1])
    top, left = math.ceil((h - x.shape[0]) / 2), math.ceil((w - x.shape[1]) / 2)
    wide = np.zeros((h, w) + x.shape[2:], x.dtype)
    wide[top:top + x.shape[0], left:left + x.shape[1]] = x
    top, left = (h - height) // 2, (w - width) // 2
    return wide[top:top + height, left:left + width]


def pixels(folder, name, c, channels):
    x = ImageOps.exif_transpose(Image.open(os.path.join(folder, name))).convert("RGB" if channels == 3 else "L")
    if c.get("do_resize", True):
        size = c["size"]
        if isinstance(size, int):
            size = {"shortest_edge": size} if c["image_processor_type"].startswith("CLIP") else {"height": size, "width": size}
        if "shortest_edge" in size:
            edge, w, h = size["shortest_edge"], *x.size
            size = {"width": edge, "height": int(edge * h / w)} if w <= h else {"width": int(edge * w / h), "height": edge}
        x = x.resize((size["width"], size["height"]), resample=c["resample"])
    x = np.array(x)
    if c.get("do_center_crop"):
        crop = c["crop_size"]
        crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop
        x = center_crop(x, crop["height"], crop["width"])
    x = x.reshape(x.shape[0], x.shape[1], channels)
    if c.get("do_rescale", True):
        x = (x * c.get("rescale_factor", 1 / 255)).astype(np.float32)
    if c.get("do_normalize", True):
        x = (x - np.array(c["image_mean"], np.float32)) / np.array(c["image_std"], np.float32)
    return x.transpose(2, 0, 1)


HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
        "image_processor_type": "CLIPImageProcessor", "do_center_crop": True}
BYTES = {"do_rescale": False, "do_normalize": False, "image_processor_type": "ViTImageProcessor"}
CASES = [
    ("rgb.png", {**HALF, "image_processor_type": "ViTImageProcessor", "size": {"height": 9, "width": 9}, "resample": 2,
                 "do_rescale": True, "rescale_factor": 1 / 255}, 3),
    ("rgb.png", {**CLIP, "size": {"shortest_edge": 10}, "crop_size": {"height": 9, "width": 9}, "resample": 3}, 3),
    ("rgb.png", {**CLIP, "size": 12, "crop_size": 8, "resample": 3, "do_convert_rgb": True}, 3),
    ("rgb.png", {**BYTES, "size": 6, "resample": 3}, 1),
    *[("small.png", {**BYTES, "size": 9, "resample": filter}, 3) for filter in (1, 2, 3, 4, 5)],
    *[("rgb.png", {**BYTES, "size": 8, "resample": filter}, 3) for filter in (1, 4, 5)],
    ("small.png", {**BYTES, "size": {"height": 4, "width": 4}, "resample": 3}, 3),
    ("small.png", {**BYTES, "do_resize": False, "do_center_crop": True, "crop_size": 8}, 3),
    *[(name, {**BYTES, "size": 6, "resample": 2}, 3)
      for name in ("gray.png", "rgba.png", "gray_alpha.png", "palette.png", "bits.png", "turned.jpg", "gray.jpg")],
]


def main(folder):
    save(folder)
    with open(os.path.join(folder, "pictures.json"), "w") as f:
        rows = [json.dumps({"file": name, "channels": channels, "config": config, "pixels":
                            [float(f"{v:.7g}") for v in pixels(folder, name, config, channels).ravel()]}, separators=(",", ":"))
                for name, config, channels in CASES]
        f.write("[" + ",\n".join(rows) + "]\n")


main(sys.argv[1])
