// Creates, reads and cancels a job of each kind, with the types that openapi-typescript has generated.
//
// node jobs.ts <URL of a node> <URL of a database>

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./duetime.ts";

type Schemas = components["schemas"];

const [url, database] = process.argv.slice(2);
assert(url && database);
const client = createClient<paths>({ baseUrl: url });

const webhook: Schemas["HttpJob"] = {
  name: "generated webhook",
  schedule: "@yearly",
  timezone: "Europe/Berlin",
  payload: { url: "https://example.com/hook", method: "PUT", body: { n: [1, null, "x"] } },
};
const script: Schemas["ScriptJob"] = {
  type: "script",
  name: "generated script",
  schedule: "@yearly",
  payload: { argv: ["echo", "hello"] },
};
const sql: Schemas["SqlJob"] = {
  type: "sql_query",
  name: "generated SQL",
  schedule: "@yearly",
  payload: { connection: "generated", statement: "SELECT ?", parameters: [1] },
};
const call: Schemas["PythonJob"] = {
  type: "python",
  name: "generated function",
  schedule: "@yearly",
  payload: { function: "reports.send", args: ["acme"] },
};

// What reads a payload is checked by the type of its job.
function summary(job: Schemas["JobView"]): string {
  switch (job.type) {
    case "http_request":
      return `${job.payload.method} ${job.payload.url}`;
    case "script":
      return job.payload.argv.join(" ");
    case "sql_query":
      return job.payload.statement;
    case "python":
      return job.payload.function;
    case "notice":
      return job.payload.title;
  }
}

async function tryOut(body: Schemas["JobSpec"]): Promise<void> {
  const { data: created } = await client.POST("/api/v1/jobs", { body });
  assert(created);
  assert(Array.isArray(created.warnings));
  const params = { path: { job_id: created.job_id } };
  const { data: read, response } = await client.GET("/api/v1/jobs/{job_id}", { params });
  assert(read);
  assert(response.headers.get("etag"));
  assert.deepEqual([read.job_id, read.created_at, read.status], [created.job_id, created.created_at, "PENDING"]);
  assert.equal(read.next_run_time, created.next_run_time);
  const { data: cancelled } = await client.POST("/api/v1/jobs/{job_id}/cancel", { params });
  assert(cancelled);
  const missing = { path: { job_id: "00000000-0000-0000-0000-000000000000" } };
  const { error } = await client.POST("/api/v1/jobs/{job_id}/cancel", { params: missing });
  assert(error);
  const { job_id, type, name } = read;
  const row = { job_id, type, name, summary: summary(read), status: cancelled.status, refused: error.error };
  console.log(JSON.stringify(row));
}

const connection = { params: { path: { name: "generated" } }, body: { url: database } };
const { error: refused } = await client.PUT("/api/v1/connections/{name}", connection);
assert.equal(refused, undefined);
for (const job of [webhook, script, sql, call]) {
  await tryOut(job);
}

// What follows is never called. Each line is wrong, and `tsc` complains if the types let it pass.
export async function mistakes(): Promise<void> {
  // @ts-expect-error a field is misspelt
  await client.POST("/api/v1/jobs", { body: { name: "x", shedule: "@daily", payload: { url: "https://example.com/" } } });
  // @ts-expect-error the payload is that of another type
  await client.POST("/api/v1/jobs", { body: { ...sql, payload: webhook.payload } });
  // @ts-expect-error a script has to say its type
  await client.POST("/api/v1/jobs", { body: { name: "x", schedule: "@daily", payload: script.payload } });
  // @ts-expect-error there is no such status
  await client.GET("/api/v1/jobs", { params: { query: { status: "ASLEEP" } } });
  const { data } = await client.GET("/api/v1/jobs", { params: { query: { status: "PAUSED", limit: 5 } } });
  // @ts-expect-error there is no such field
  data?.jobs[0]?.shedule;
}
