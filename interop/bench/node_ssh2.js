// One measurement of ssh2 for Node: `node node_ssh2.js WORK JSON` prints CPU and wall seconds.
"use strict";
const fs = require("fs");
const { Client } = require("ssh2");

const work = process.argv[2];
const job = JSON.parse(process.argv[3]);
const key = fs.readFileSync(job.user);
const known = fs.readFileSync(job.known_hosts, "utf8").split(/\s+/);
const CHUNK = 262144;

function connect() {
  return new Promise((resolve, reject) => {
    const client = new Client();
    client.on("ready", () => resolve(client)).on("error", reject);
    client.connect({
      host: job.host,
      port: job.port,
      username: job.username,
      privateKey: key,
      hostVerifier: (blob) => known.includes(blob.toString("base64")),
      algorithms: { cipher: [job.cipher], compress: ["none"] },
    });
  });
}

function close(client) {
  return new Promise((resolve) => {
    client.on("close", resolve);
    client.end();
  });
}

function run(client, command) {
  return new Promise((resolve, reject) =>
    client.exec(command, (error, stream) => (error ? reject(error) : resolve(stream))));
}

function ended(stream) {
  return new Promise((resolve) => stream.on("close", resolve));
}

function check(right, what) {
  if (!right) throw new Error(what);
}

async function download(client) {
  const stream = await run(client, `head -c ${job.size} /dev/zero`);
  let total = 0;
  stream.on("data", (data) => { total += data.length; });
  await ended(stream);
  check(total === job.size, `${total} bytes came`);
}

async function write(client, block, times) {
  const stream = await run(client, "wc -c");
  let text = "";
  stream.on("data", (data) => { text += data; });
  const end = ended(stream);
  for (let number = 0; number < times; number++) {
    if (!stream.write(block)) await new Promise((resolve) => stream.once("drain", resolve));
  }
  stream.end();
  await end;
  check(parseInt(text, 10) === times * block.length, `${text} bytes arrived`);
}

async function echo(client) {
  const stream = await run(client, "cat");
  const message = Buffer.alloc(64);
  let left = 0;
  let done = null;
  stream.on("data", (data) => { if ((left -= data.length) === 0) done(); });
  for (let number = 0; number < job.count; number++) {
    left = message.length;
    const back = new Promise((resolve) => { done = resolve; });
    stream.write(message);
    await back;
  }
  const end = ended(stream);
  stream.end();
  await end;
}

async function connects() {
  for (let number = 0; number < job.count; number++) await close(await connect());
}

const works = {
  download,
  upload: (client) => write(client, Buffer.alloc(CHUNK), Math.floor(job.size / CHUNK)),
  messages: (client) => write(client, Buffer.alloc(1024), job.count),
  echo,
};

async function main() {
  const client = await connect();
  if (work === "connect") await close(client);
  const cpu = process.cpuUsage();
  const wall = process.hrtime.bigint();
  await (work === "connect" ? connects() : works[work](client));
  const used = process.cpuUsage(cpu);
  const seconds = Number(process.hrtime.bigint() - wall) / 1e9;
  if (work !== "connect") await close(client);
  console.log(JSON.stringify({ cpu: (used.user + used.system) / 1e6, wall: seconds }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
