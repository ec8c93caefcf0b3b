/** What tensors are for, as their names or shapes tell. */

const KINDS: readonly [name: string, pattern: RegExp][] = [
  ["normalization", /norm|(^|[._/])(bn|ln)\d*([._/]|$)|ln_|batch_?norm|moving_(mean|var)|running_(mean|var)|(^|[._/])(gamma|beta)$/],
  ["quantization", /scale|zero_?point|quant|(^|[._/])(lut|palette)/],
  ["embedding", /embed|(^|[._/])(wte|wpe)([._/]|$)|vocab|token_type|lookup/],
  ["attention", /att(e?n)?|query|(^|[._/])[qkv](kv)?(_proj|_lin)?([._/]|$)|key|value|qkv|mha/],
  ["recurrent", /lstm|gru|rnn|recurrent|cell/],
  ["convolution", /conv|depthwise|pointwise|downsample|stem/],
  ["head", /head|classif|logit|pooler|predict|(^|[._/])(cls|output_layer)([._/]|$)/],
  ["linear", /ffn|mlp|feed_?forward|intermediate|dense|linear|(^|[._/])fc\d*|_proj|gemm|matmul|(up|down|gate)_?proj/],
  ["bias", /bias|(^|[._/])b(_\d+)?$/],
];

export const KIND_NAMES = [...KINDS.map(([name]) => name), "other"];

/** The kind of a tensor, or of a group of them, whose shape is null; names that say nothing leave the shape. */
export const kindOf = (name: string, shape: readonly number[] | null): string => {
  const lower = name.toLowerCase();
  return KINDS.find(([, pattern]) => pattern.test(lower))?.[0] ?? BY_RANK[shape?.length ?? 0] ?? "other";
};

const BY_RANK: Record<number, string> = { 1: "bias", 2: "linear", 4: "convolution", 5: "convolution" };
