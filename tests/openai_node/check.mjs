// OpenAI's Node client, unmodified, against a running service: node check.mjs URL MODEL PIPELINE EMBEDDER
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import OpenAI, { toFile } from "openai";

const [baseURL, model, pipeline, embedder] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "anything", maxRetries: 5 });
const messages = [{ role: "user", content: "What is 3 plus 4?" }];
const CHAT = "/v1/chat/completions";

const checks = {
  async "models are listed and looked up"() {
    const names = [];
    for await (const each of client.models.list()) names.push(each.id);
    for (const name of [model, pipeline, embedder]) {
      assert(names.includes(name), `${name} is not in ${names}`);
      assert.equal((await client.models.retrieve(name)).id, name);
    }
  },
  async "a conversation is answered"() {
    const answer = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 20 });
    assert.equal(answer.choices[0].message.role, "assistant");
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  },
  async "a pipeline answers with citations"() {
    const answer = await client.chat.completions.create({ model: pipeline, messages });
    assert(answer.mathrag.context.length > 0);
    assert(answer.mathrag.job);
  },
  async "a stream ends with its usage"() {
    const options = { model, messages, stream: true, stream_options: { include_usage: true }, max_tokens: 20 };
    let text = "", usage = null;
    for await (const chunk of await client.chat.completions.create(options)) {
      text += chunk.choices[0]?.delta?.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert(text.length > 0);
    assert(usage.total_tokens > 0);
  },
  async "texts are embedded in both encodings"() {
    const input = ["the area of a circle", "a prime"];
    const packed = await client.embeddings.create({ model: embedder, input });
    const plain = await client.embeddings.create({ model: embedder, input, encoding_format: "float" });
    assert.deepEqual(packed.data[1].embedding.map(Math.fround), plain.data[1].embedding.map(Math.fround));
  },
  async "errors have their classes and name the field"() {
    const tools = [{ type: "function", function: { name: "f" } }];
    await assert.rejects(client.chat.completions.create({ model, messages, tools }), (error) => {
      return error instanceof OpenAI.BadRequestError && error.param === "tools";
    });
    await assert.rejects(client.chat.completions.create({ model: "none", messages }), OpenAI.NotFoundError);
    await assert.rejects(client.files.retrieve("file-none"), OpenAI.NotFoundError);
    const window = { input_file_id: "file-none", endpoint: CHAT, completion_window: "5s" };
    await assert.rejects(client.batches.create(window), (error) => error.param === "completion_window");
  },
  async "files are uploaded, listed, read and deleted"() {
    const expires_after = { anchor: "created_at", seconds: 3600 };
    const file = await client.files.create({ file: await toFile(Buffer.from("{}\n"), "a.jsonl"), purpose: "batch", expires_after });
    assert.deepEqual([file.bytes, file.filename, file.expires_at - file.created_at], [3, "a.jsonl", 3600]);
    const names = [];
    for await (const each of client.files.list({ limit: 1, purpose: "batch" })) names.push(each.id);
    assert(names.includes(file.id));
    assert.equal(await (await client.files.content(file.id)).text(), "{}\n");
    assert.equal((await client.files.delete(file.id)).deleted, true);
    await assert.rejects(client.files.content(file.id), OpenAI.NotFoundError);
  },
  async "a batch over a model and a pipeline answers each line once"() {
    const batch = await ended(await submit([model, pipeline, model], CHAT, (name, n) => {
      return { model: name, messages: [{ role: "user", content: `What is ${n} plus 4?` }], max_tokens: 20 };
    }));
    assert.equal(batch.status, "completed");
    assert.deepEqual(batch.request_counts, { total: 3, completed: 3, failed: 0 });
    assert.deepEqual(batch.metadata, { client: "node" });
    const lines = (await (await client.files.content(batch.output_file_id)).text()).trim().split("\n").map(JSON.parse);
    assert.deepEqual(lines.map((line) => line.custom_id), ["q0", "q1", "q2"]);
    assert(lines[1].response.body.mathrag.context.length > 0);
    assert.equal(batch.usage.total_tokens, lines.reduce((sum, line) => sum + line.response.body.usage.total_tokens, 0));
  },
  async "a batch of embeddings"() {
    const batch = await ended(await submit([embedder], "/v1/embeddings", (name) => ({ model: name, input: ["a", "b"] })));
    const line = JSON.parse(await (await client.files.content(batch.output_file_id)).text());
    assert.equal(line.response.body.data.length, 2);
  },
  async "a batch whose lines cannot be used fails by line"() {
    const batch = await ended(await submit([model, "none"], CHAT, (name) => ({ model: name, messages })));
    assert.equal(batch.status, "failed");
    assert.deepEqual(batch.errors.data.map((error) => [error.line, error.code]), [[2, "model_not_found"]]);
  },
  async "a batch is cancelled, and listed"() {
    const { id } = await submit([model], CHAT, (name) => ({ model: name, messages: [{ role: "user", content: "Go on." }] }));
    const cancelled = await client.batches.cancel(id);
    assert(["cancelling", "cancelled"].includes(cancelled.status), cancelled.status);
    assert.equal((await ended(cancelled)).status, "cancelled");
    const ids = [];
    for await (const each of client.batches.list({ limit: 1 })) ids.push(each.id);
    assert(ids.includes(id));
  },
};

async function submit(names, url, body) {
  const lines = names.map((name, n) => JSON.stringify({ custom_id: `q${n}`, method: "POST", url, body: body(name, n) }));
  const file = await client.files.create({ file: await toFile(Buffer.from(lines.join("\n")), "lines.jsonl"), purpose: "batch" });
  return client.batches.create({ input_file_id: file.id, endpoint: url, completion_window: "24h", metadata: { client: "node" } });
}

async function ended(batch) {
  while (!["completed", "failed", "expired", "cancelled"].includes(batch.status)) {
    await pause(200);
    batch = await client.batches.retrieve(batch.id);
  }
  return batch;
}

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(`ok  ${name}`);
}
