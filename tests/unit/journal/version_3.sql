-- What a journal of version 3 holds (one question, answered; one outcome), as sqlite3's dump says it.
BEGIN TRANSACTION;
CREATE TABLE calls (
    number INTEGER PRIMARY KEY, episode INTEGER NOT NULL, round INTEGER NOT NULL, step INTEGER, attempt INTEGER,
    worker TEXT, identity TEXT, outcome TEXT, nested INTEGER, replayed INTEGER, replayable INTEGER, key TEXT,
    request_hash TEXT, started REAL, 
    input_tokens INTEGER, cached_tokens INTEGER, output_tokens INTEGER, reasoning_tokens INTEGER, dollars TEXT,
    unpriced_calls INTEGER, work_seconds REAL,
    price TEXT, finish_reason TEXT, text INTEGER, reasoning INTEGER, error_type TEXT, error TEXT, request TEXT,
    tool_calls TEXT, body_sent TEXT, status INTEGER);
INSERT INTO "calls" VALUES(1,1,0,NULL,0,'conductor','','answered',0,0,1,'dd41a5dd395a0454d3def3716623e8ff','95190667128ab85de60f9717e3dadfe2',9.36227000011058407835e-04,0,0,0,0,'0',1,9.40022999884604359976e-04,NULL,'stop',3,NULL,NULL,NULL,'{"messages":[{"content":1,"role":"system"},{"content":2,"role":"user"}],"sampling":{"max_tokens":1024}}',NULL,NULL,NULL);
INSERT INTO "calls" VALUES(2,1,0,0,0,'mine','','answered',0,0,1,'13aa2358cb00089303fb509d4addd9d9','47a1885b9bbc964098b517c3f8bc3722',2.34783399992011254653e-03,0,0,0,0,'0',1,5.14104099988799134735e-03,NULL,'stop',5,NULL,NULL,NULL,'{"messages":[{"content":4,"role":"user"}],"sampling":{}}',NULL,NULL,NULL);
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, above TEXT, path TEXT, sample INTEGER, started REAL,
    outcome TEXT NOT NULL DEFAULT 'unfinished', seconds REAL, 
    input_tokens INTEGER, cached_tokens INTEGER, output_tokens INTEGER, reasoning_tokens INTEGER, dollars TEXT,
    unpriced_calls INTEGER, work_seconds REAL,
    error_type TEXT, error TEXT, answer TEXT, question TEXT);
INSERT INTO "episodes" VALUES(1,'8e8e11496cd840ee8b0861353ac55b6f','','[]',0,1.79532078119178915018e+09,'answered',7.74503799993908614851e-03,0,0,0,0,'0',2,6.08106399977259570732e-03,NULL,NULL,'4','"What is 2 + 2?"');
CREATE TABLE outcomes (number INTEGER PRIMARY KEY, key TEXT NOT NULL, written REAL, record TEXT NOT NULL);
INSERT INTO "outcomes" VALUES(1,'k',1.79532078120270848281e+09,'{"correct":true}');
CREATE TABLE rounds (
    episode INTEGER NOT NULL, round INTEGER NOT NULL, ended REAL, valid INTEGER, accepted INTEGER, reason TEXT,
    error_type TEXT, error TEXT, workers TEXT, access TEXT, subtasks TEXT, text TEXT,
    PRIMARY KEY (episode, round)) WITHOUT ROWID;
INSERT INTO "rounds" VALUES(1,0,7.71348099988244939595e-03,1,0,NULL,NULL,NULL,'[0]','[[]]','["Answer."]','model_id = [0]
subtasks = [''Answer.'']
access_list = [[]]');
CREATE TABLE steps (
    episode INTEGER NOT NULL, round INTEGER NOT NULL, step INTEGER NOT NULL, worker INTEGER, answered_by INTEGER,
    outcome TEXT, started REAL, ended REAL, 
    input_tokens INTEGER, cached_tokens INTEGER, output_tokens INTEGER, reasoning_tokens INTEGER, dollars TEXT,
    unpriced_calls INTEGER, work_seconds REAL,
    error_type TEXT, error TEXT, access TEXT, subtask TEXT,
    PRIMARY KEY (episode, round, step)) WITHOUT ROWID;
INSERT INTO "steps" VALUES(1,0,0,0,0,'answered',2.33297199997650750447e-03,0.00758598999982496,0,0,0,0,'0',1,5.14104099988799134735e-03,NULL,NULL,'[]','Answer.');
CREATE TABLE texts (number INTEGER PRIMARY KEY, text TEXT);
INSERT INTO "texts" VALUES(1,'You lead a team of workers.');
INSERT INTO "texts" VALUES(2,'What is 2 + 2?');
INSERT INTO "texts" VALUES(3,'model_id = [0]
subtasks = [''Answer.'']
access_list = [[]]');
INSERT INTO "texts" VALUES(4,'What is 2 + 2?

Answer.');
INSERT INTO "texts" VALUES(5,'4');
CREATE VIEW turns AS SELECT calls.number AS call, turn.key AS turn, json_extract(turn.value, '$.role') AS role,
    texts.text AS content FROM calls JOIN json_each(calls.request, '$.messages') AS turn
    JOIN texts ON texts.number = json_extract(turn.value, '$.content');
CREATE INDEX calls_by_episode ON calls (episode);
CREATE INDEX calls_by_key ON calls (key) WHERE replayable;
CREATE INDEX outcomes_by_key ON outcomes (key);
COMMIT;
PRAGMA application_id = 1329809996;
PRAGMA user_version = 3;
