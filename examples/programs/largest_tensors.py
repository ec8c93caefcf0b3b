"""List the largest tensors of a model, which may be a file, a folder, or a store of a service.

python largest_tensors.py model.onnx
python largest_tensors.py http://127.0.0.1:8000/m/demo:1
"""

import sys

import protoslice


def main(name: str, count: int = 10) -> None:
    """Print size, shape and name of the `count` largest tensors, without reading their elements."""
    with protoslice.open_model(name) as model:
        for tensor in sorted(model.values(), key=lambda tensor: -tensor.nbytes)[:count]:
            print(tensor.nbytes, tensor.shape, tensor.facts.name)


if __name__ == "__main__":
    main(sys.argv[1])
