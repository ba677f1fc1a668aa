# after: notebooks with a DQN agent: replay memory, small `fit`s, a target network's weights copied
# expects: equal
import random
from collections import deque

import keras
import numpy as np

keras.utils.set_random_seed(0)


class Walk:
    """Left or right on a line of seven places, until one end is reached."""

    def reset(self):
        self.at = 3
        return self.state()

    def state(self):
        return np.eye(7)[self.at]

    def step(self, action):
        self.at += 1 if action else -1
        done = self.at in (0, 6)
        return self.state(), float(self.at == 6), done


class DQNAgent:
    def __init__(self, state_size, action_size):
        self.state_size, self.action_size = state_size, action_size
        self.memory = deque(maxlen=200)
        self.gamma, self.epsilon = 0.9, 1.0
        self.epsilon_min, self.epsilon_decay = 0.1, 0.8
        self.model, self.target = self._build_model(), self._build_model()
        self.update_target_model()

    def _build_model(self):
        model = keras.Sequential()
        model.add(keras.layers.Dense(12, input_shape=(self.state_size,), activation="relu"))
        model.add(keras.layers.Dense(self.action_size, activation="linear"))
        model.compile(loss="mse", optimizer=keras.optimizers.Adam(learning_rate=0.01))
        return model

    def update_target_model(self):
        self.target.set_weights(self.model.get_weights())

    def act(self, state):
        if np.random.rand() <= self.epsilon:
            return random.randrange(self.action_size)
        return np.argmax(self.model.predict(state, verbose=0)[0])

    def replay(self, batch_size):
        batch = random.sample(self.memory, batch_size)
        states = np.concatenate([b[0] for b in batch])
        target = self.model.predict(states, verbose=0)
        t = self.target.predict(np.concatenate([b[3] for b in batch]), verbose=0)
        for i, (_, action, reward, _, done) in enumerate(batch):
            target[i][action] = reward if done else reward + self.gamma * np.amax(t[i])
        history = self.model.fit(states, target, epochs=1, verbose=0, batch_size=12, shuffle=False)
        self.epsilon = max(self.epsilon * self.epsilon_decay, self.epsilon_min)
        return history.history["loss"][0]


env, agent = Walk(), DQNAgent(7, 2)
for e in range(6):
    state = np.reshape(env.reset(), [1, 7])
    for time in range(8):
        action = agent.act(state)
        next_state, reward, done = env.step(action)
        next_state = np.reshape(next_state, [1, 7])
        agent.memory.append((state, action, reward, next_state, done))
        state = next_state
        if done:
            break
    if len(agent.memory) > 12:
        loss = agent.replay(12)
        print(f"loss {e} =", loss)
    agent.update_target_model()
print("memory =", len(agent.memory), " epsilon =", agent.epsilon)
print("values =", float(agent.model.predict(np.eye(7), verbose=0).sum()))
agent.model.save_weights("dqn.weights.h5")
