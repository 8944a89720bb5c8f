#!/bin/sh
# The outputs of the shipped networks beside torchvision's (ViT: timm's, if the Python has it), with weights that
# torch.save() wrote: networks_outputs.py.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
python=$(sh tests/torch_env.sh 2>/dev/null)
if [ "$python" = no-torch ]; then
    skip "outputs of the shipped networks" "no torch: sh tests/torch_env.sh --make"
    exit 0
fi
networks="alexnet resnet18 resnet50 mobilenet_v2 vgg16 squeezenet convnext_tiny"
"$python" -c 'import timm' 2>/dev/null && networks="$networks vit_tiny"
for network in $networks; do
    t "$network gives torchvision's outputs to 1e-4" "$python" tests/golden/networks_outputs.py "$NNPIPE" "$network"
done
[ "$failed" -eq 0 ]
