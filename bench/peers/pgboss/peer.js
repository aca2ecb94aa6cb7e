// pg-boss as a scheduler of webhooks. Takes an Order as JSON in argv, prints "stored" when every job is in the
// database, and works until SIGTERM. Set up for throughput: large batches that are fetched again at once while they
// come back full, several workers whose polls (0.5 s is the shortest it allows) are spread evenly, and undici
// with 64 keep-alive connections.
import { PgBoss } from 'pg-boss'
import { Pool } from 'undici'

const order = JSON.parse(process.argv[2])
const QUEUE = 'webhooks'
const WORKERS = 6
const BATCH = 500
const POLL_SECONDS = 0.5
const INSERT_PAGE = 5000

const http = new Pool(`http://127.0.0.1:${order.port}`, { connections: 64, pipelining: 1 })
const boss = new PgBoss({ ...order.postgres, max: WORKERS + 4, supervise: false, schedule: false })
boss.on('error', error => console.error(error))

async function send (job) {
  const { body } = await http.request({
    method: 'POST',
    path: job.data.path,
    headers: { 'content-type': 'application/json' },
    body: job.data.body
  })
  await body.dump()
}

function jobs () {
  const made = []
  for (const instant of order.instants) {
    const startAfter = new Date(instant)
    for (let n = 0; n < order.jobs; n++) {
      const path = order.instants.length > 1 ? `/${order.run}/${n}/${instant}` : `/${order.run}/${n}`
      made.push({ data: { path, body: `{"n":${n}}` }, startAfter })
    }
  }
  return made
}

await boss.start()
await boss.createQueue(QUEUE)
const all = jobs()
for (let at = 0; at < all.length; at += INSERT_PAGE) await boss.insert(QUEUE, all.slice(at, at + INSERT_PAGE))
await boss.getDb().executeSql('ANALYZE')
console.log('stored')

for (let worker = 0; worker < WORKERS; worker++) {
  await boss.work(
    QUEUE,
    { batchSize: BATCH, pollingIntervalSeconds: POLL_SECONDS, burstWhenBatchFull: true },
    batch => Promise.all(batch.map(send))
  )
  await new Promise(resolve => setTimeout(resolve, (POLL_SECONDS * 1000) / WORKERS))
}

process.on('SIGTERM', () => process.exit(0))
