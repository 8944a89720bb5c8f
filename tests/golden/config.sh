#!/bin/sh
# Configs in, exact text out: every bad config and its messages, and every shipped config in
# normal form, which parses back to itself.
. "$(dirname "$0")/../lib.sh"
here=$ROOT/tests/golden

# refused NAME: check prints exactly NAME.txt and ends with 2
refused() {
    cd "$here/bad_configs" || return 1
    "$NNPIPE" check "$1.yaml" >"$TMP/got.txt" 2>&1
    code=$?
    [ $code -eq 2 ] || { echo "exit $code, not 2"; return 1; }
    diff "$1.txt" "$TMP/got.txt"
}
for config in "$here"/bad_configs/*.yaml; do
    name=$(basename "$config" .yaml)
    t "bad config $name is refused with its messages" refused "$name"
done

# the mistakes of check are those of train, which writes nothing before it has said them
train_refuses() {
    mkdir -p "$TMP/empty" && cd "$TMP/empty" || return 1
    "$NNPIPE" train "$here/bad_configs/54.yaml" >"$TMP/out.txt" 2>"$TMP/got.txt"
    [ $? -eq 2 ] && [ ! -s "$TMP/out.txt" ] && [ -z "$(ls -A)" ] &&
        sed "s|^$here/bad_configs/||" "$TMP/got.txt" | diff "$here/bad_configs/54.txt" -
}
t "train refuses a wrong config with all its mistakes and writes nothing" train_refuses

# round CONFIG: show prints a config that show prints the same
round() {
    "$NNPIPE" show "$1" >"$TMP/first.yaml" 2>"$TMP/err.txt" || { cat "$TMP/err.txt"; return 1; }
    "$NNPIPE" show "$TMP/first.yaml" >"$TMP/second.yaml" 2>>"$TMP/err.txt" || { cat "$TMP/err.txt"; return 1; }
    diff "$TMP/first.yaml" "$TMP/second.yaml"
}
for config in "$ROOT"/configs/*.yaml; do
    t "$(basename "$config") is checked and found right" "$NNPIPE" check "$config"
    t "$(basename "$config") in normal form parses back to itself" round "$config"
done

# total CONFIG PARAMETERS: what show --json ends with
total() { "$NNPIPE" show "$1" --json 2>/dev/null | tail -n 1 | grep -qF "{\"event\": \"total\", \"parameters\": $2,"; }
t "ResNet-18 has torchvision's 11689512 parameters" total "$ROOT/configs/resnet18.yaml" 11689512
t "ResNet-50 has torchvision's 25557032 parameters" total "$ROOT/configs/resnet50.yaml" 25557032
t "AlexNet has torchvision's 61100840 parameters" total "$ROOT/configs/alexnet.yaml" 61100840
short() { [ "$(grep -cvE '^ *(#|$)' "$1")" -le 40 ]; }
t "resnet18.yaml has at most 40 lines" short "$ROOT/configs/resnet18.yaml"
t "resnet50.yaml has at most 40 lines" short "$ROOT/configs/resnet50.yaml"

# override MESSAGE ARGS...: check says exactly that and ends with 2
override() {
    want=$1
    shift
    "$NNPIPE" check "$ROOT/configs/cnn.yaml" "$@" >"$TMP/got.txt" 2>&1
    [ $? -eq 2 ] && [ "$(cat "$TMP/got.txt")" = "$want" ] || { cat "$TMP/got.txt"; return 1; }
}
t "-o names its key" override "-o loader.batch: batch: expected a whole number, not 'x'" -o loader.batch=x
t "-o suggests the nearest key" override "-o trian: trian: unknown key in the config; did you mean 'train'?" -o trian=1
t "-o knows a list's length" override "-o model.99: '99' is no item of this list; it has 0 to 8" -o model.99=relu
t "-o takes a YAML value" "$NNPIPE" check "$ROOT/configs/cnn.yaml" -o 'loader.augment=[flip, {random_crop: {size: 32}}]' -o model.0.conv.out=8
t "-o needs a value" override "-o seed: expected KEY=VALUE" -o seed

# usage MESSAGE ARGS...: the first line on stderr, exit 2
usage() {
    want=$1
    shift
    "$NNPIPE" "$@" >/dev/null 2>"$TMP/got.txt"
    [ $? -eq 2 ] && [ "$(head -n 1 "$TMP/got.txt")" = "$want" ] || { cat "$TMP/got.txt"; return 1; }
}
t "an unknown command is answered with the nearest" usage "nnpipe: there is no command 'trian'; did you mean 'train'?" trian
t "an unknown flag is answered with the nearest" usage "nnpipe train: there is no flag --resum; did you mean --resume?" train x.yaml --resum
t "a flag without its value is named" usage "nnpipe train: --weights needs a value" train x.yaml --weights
t "a value that a flag does not take is named" usage "nnpipe train: --json takes no value" train x.yaml --json=1
t "eval wants weights" usage "nnpipe eval: expected CONFIG --weights FILE" eval x.yaml
t "a config that is not there is named" usage "no/such.yaml: cannot be read: No such file or directory" check no/such.yaml
t "a folder is no config" usage "$ROOT/configs: cannot be read: Is a directory" check "$ROOT/configs"
t "an unknown device is named" usage "$ROOT/configs/cnn.yaml: device: should be auto, cpu, cuda:N or {sim: {...}}; did you mean \`cpu\`?" train "$ROOT/configs/cnn.yaml" --device gpu

stdin_config() { "$NNPIPE" check - <"$ROOT/configs/cnn.yaml"; }
t "a config can come from standard input" stdin_config
t "help knows every command" says "usage: nnpipe train CONFIG" "$NNPIPE" help train
reference() { "$NNPIPE" help config-reference | diff "$ROOT/docs/CONFIG.md" -; }
t "docs/CONFIG.md is what the program prints" reference
settings() { "$NNPIPE" help service-reference | diff "$ROOT/docs/SERVICE_CONFIG.md" -; }
t "docs/SERVICE_CONFIG.md is what the program prints" settings
t "check reads no config above 1 MiB" sh -c 'head -c 2000000 /dev/zero | tr "\0" a | "$0" check - 2>&1 | grep -q "at most 1 MiB"' "$NNPIPE"
[ "$failed" -eq 0 ]
