#!/usr/bin/python3
# make_audio.py DIR: what NumPy says about a short sound, for test_audio: DIR/audio.json with samples of it at another rate
# and of its log-mel spectrogram. The sound itself follows from a formula, here and in the test. Written from Hugging
# Face's WhisperFeatureExtractor and torchaudio's documentation, apart from Sinter's code.
import json
import math
import os
import sys

import numpy as np


def sound(n, rate):
    t = np.arange(n) / rate
    return (0.4 * np.sin(2 * math.pi * (300 + 900 * t) * t) + 0.2 * np.sin(2 * math.pi * 3100 * t)
            + 0.1 * np.sign(np.sin(2 * math.pi * 7 * t))).astype(np.float32)


def resample(x, old, new):
    g = math.gcd(old, new)
    old, new = old // g, new // g
    base = min(old, new) * 0.99
    width = math.ceil(6 * old / base)
    index = np.arange(-width, width + old)[None] / old
    t = np.clip((np.arange(0, -new, -1)[:, None] / new + index) * base, -6, 6)
    window = np.cos(t * math.pi / 12) ** 2
    kernels = np.where(t == 0, 1, np.sin(t * math.pi) / np.where(t == 0, 1, t * math.pi)) * window * base / old
    padded = np.pad(x.astype(np.float64), (width, width + old))
    y = np.array([kernels @ padded[i:i + kernels.shape[1]] for i in range(0, len(x), old)]).ravel()
    return y[:math.ceil(new * len(x) / old)]


def filters(bins):
    mels = np.linspace(0, 45.245640471924965, bins + 2)
    hertz = np.where(mels >= 15, 1000 * np.exp(np.log(6.4) / 27 * (mels - 15)), 200 / 3 * mels)
    ramps = hertz[:, None] - np.fft.rfftfreq(400, 1 / 16000)[None]
    step = np.diff(hertz)
    lower, upper = -ramps[:-2] / step[:-1, None], ramps[2:] / step[1:, None]
    return np.maximum(0, np.minimum(lower, upper)) * (2 / (hertz[2:] - hertz[:-2]))[:, None]


def log_mel(x, bins):
    window = np.hanning(401)[:-1]
    padded = np.pad(x.astype(np.float64), 200, mode="reflect")
    frames = np.array([padded[i:i + 400] * window for i in range(0, len(padded) - 399, 160)])[:len(x) // 160]
    power = np.abs(np.fft.rfft(frames)) ** 2
    level = np.log10(np.maximum(filters(bins) @ power.T, 1e-10))
    return (np.maximum(level, level.max() - 8) + 4) / 4


def numbers(x):
    return [float(f"{v:.7g}") for v in np.ravel(x)]


def main(folder):
    x = sound(8000, 16000)
    out = {"resampled": {str(rate): numbers(resample(sound(rate // 2, rate), rate, 16000)[::97]) for rate in (8000, 44100, 48000)},
           "mel": {str(bins): numbers(log_mel(np.pad(x, (0, 1600)), bins)[::7, ::5]) for bins in (80, 128)}}
    with open(os.path.join(folder, "audio.json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
