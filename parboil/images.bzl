# SPDX-License-Identifier: Apache-2.0
"""What a benchmark's CUDA module is called in C++."""

def image_name(src):
    """mri_fhd/kernel.cu: mriFhdImage."""
    words = src.split("/")[0].replace("-", "_").split("_")
    return words[0] + "".join([word.capitalize() for word in words[1:]]) + "Image"
