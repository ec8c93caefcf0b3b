"""ONNX models in packages of the Python index, from which parts are cut."""

from __future__ import annotations

from typing import Final

PACKAGES: Final = (
    "ddddocr==1.6.1", "magika==1.0.3", "nudenet==3.4.2", "piper-tts==1.8.0", "onnx-asr==0.12.0",
    "rapidocr-onnxruntime==1.4.4",
)  # fmt: skip
_RAPID: Final = "rapidocr_onnxruntime/models/"
CUT: Final = (
    ("ddddocr", "ddddocr", "ddddocr/common.onnx"),
    ("ddddocr-det", "ddddocr", "ddddocr/common_det.onnx"),
    ("magika", "magika", "magika/models/standard_v3_3/model.onnx"),
    ("detector", "nudenet", "nudenet/320n.onnx"),
    ("tashkeel", "piper_tts", "piper/tashkeel/model.onnx"),
    ("nakdimon", "piper_tts", "piper/hebrew/nakdimon.onnx"),
    ("resample", "onnx_asr", "onnx_asr/preprocessors/data/resample_16_8.onnx"),
    ("ocr-rec", "rapidocr_onnxruntime", f"{_RAPID}ch_PP-OCRv4_rec_infer.onnx"),
    ("ocr-det", "rapidocr_onnxruntime", f"{_RAPID}ch_PP-OCRv4_det_infer.onnx"),
    ("ocr-cls", "rapidocr_onnxruntime", f"{_RAPID}ch_ppocr_mobile_v2.0_cls_infer.onnx"),
)
"""The models' names, the beginnings of their wheels' names, and their paths in the wheels."""
