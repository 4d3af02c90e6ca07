"""llama.cpp, through the xllamacpp wheel: a model of GGUF files behind its own server,
in this process."""

import base64
import json
import urllib.request

import xllamacpp


class Llama:
    def __init__(self, folder, lora=True):
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(folder / "model.gguf")
        parameters.mmproj.path = str(folder / "mmproj.gguf")
        if lora:
            parameters.lora_adapters = [
                xllamacpp.CommonAdapterLoraInfo(str(folder / "lora.gguf"), 1.0)
            ]
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = 512, 512, 512
        (
            parameters.n_parallel,
            parameters.cpuparams.n_threads,
            parameters.cpuparams_batch.n_threads,
        ) = 1, 1, 1
        (
            parameters.warmup,
            parameters.mmproj_use_gpu,
            parameters.n_gpu_layers,
            parameters.verbosity,
        ) = False, False, 0, -1
        parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.server = xllamacpp.Server(parameters)
        self.marker = self.get("/props")["media_marker"]
        self.letter = self.ids("a")[0]

    def get(self, path):
        with urllib.request.urlopen(self.server.listening_address + path, timeout=60) as answer:
            return json.load(answer)

    def post(self, path, **body):
        request = urllib.request.Request(
            self.server.listening_address + path,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def ids(self, text):
        return self.post("/tokenize", content=text, add_special=True, parse_special=True)["tokens"]

    def next_logprobs(self, prompt, image=None, count=64):
        """{id: logprob} of the most likely next tokens;
        an image, as PNG, replaces the marker in the prompt."""
        if image is not None:
            prompt = dict(prompt_string=prompt, multimodal_data=[base64.b64encode(image).decode()])
        # The scores are those before the bias. The bias makes it generate a letter:
        # half a character has no score, nor does the end.
        bias = [[self.letter, 1000]]
        answer = self.post(
            "/completion",
            prompt=prompt,
            n_predict=1,
            n_probs=count,
            temperature=0,
            cache_prompt=False,
            logit_bias=bias,
        )
        return {
            token["id"]: token["logprob"]
            for token in answer["completion_probabilities"][0]["top_logprobs"]
        }
